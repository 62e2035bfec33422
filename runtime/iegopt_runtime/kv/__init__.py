"""The KV cache manager (section 6.3): blocks named by the hash of their prefix, three tiers, transfers."""
