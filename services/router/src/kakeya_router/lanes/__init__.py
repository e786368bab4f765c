"""How a session gets a lane and gives it up: searched for, waited for, opened, parked, moved, resumed, closed."""
