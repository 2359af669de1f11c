"""Where bulk data lies: a folder of plain files, or any object store by URL. See each module."""
