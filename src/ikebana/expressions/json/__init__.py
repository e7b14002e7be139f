"""Functions of JSON: parsing by a schema, generating, and paths."""
