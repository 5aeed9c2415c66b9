"""Values as int64 words: codecs, dictionaries, types, and orders of codes."""
