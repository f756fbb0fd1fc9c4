"""What people and programs are shown of an attack."""
