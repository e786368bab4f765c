"""What a stack will run and on which ports, checked before anything is started."""
