"""The kinds as an API: CustomResourceDefinitions, immutable fields, columns, pages, and messages about unknown names."""
