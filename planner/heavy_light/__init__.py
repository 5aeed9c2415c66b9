"""IVM^eps: unions of view trees over heavy and light parts."""
