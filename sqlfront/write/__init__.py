"""Changes of tables: DML, apply and apply_row."""
