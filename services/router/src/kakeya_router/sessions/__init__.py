"""A session as a whole: created, forked, rewound, parked, drained, reaped."""
