-- Says that a router runs, forgets those that stopped saying so, and lists the rest.
-- KEYS    routers
-- ARGV    address, lease_ms
-- returns addresses
local now = now_ms()
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
return redis.call('ZRANGE', KEYS[1], 0, -1)
