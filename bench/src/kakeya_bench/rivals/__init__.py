"""What engines are measured beside: llama.cpp and transformers, built, started and stopped here."""
