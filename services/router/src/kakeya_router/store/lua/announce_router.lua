-- Says that a router runs, forgets those that stopped saying so, and lists the rest.
-- KEYS    routers
-- ARGV    address, lease_ms
-- returns addresses
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
return redis.call('ZRANGE', KEYS[1], 0, -1)
