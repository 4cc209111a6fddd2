"""What commands print: tables, lines, logs and live screens."""
