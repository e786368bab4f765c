"""Attention in a fixed order: over K and V of each type, and how these are stored."""
