"""What both ends of a tunnel use: connections whose bytes are copied, and the line with which they begin."""
