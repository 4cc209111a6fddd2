"""The kinds as an API: CustomResourceDefinitions, immutable fields, columns, pages, messages about unknown names."""
