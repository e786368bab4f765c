"""Dashboards for Grafana, as code."""
