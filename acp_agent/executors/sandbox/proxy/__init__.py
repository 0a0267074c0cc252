"""How confined commands reach the network: by nothing but a proxy of ours."""
