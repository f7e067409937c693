"""What every room uses: atomic files, parallel work, array types, one reader of configurations."""
