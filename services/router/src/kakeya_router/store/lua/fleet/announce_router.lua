-- Says that a router runs, forgets those that stopped saying so, and lists the rest.
-- key routers
-- arg address, lease_ms
-- returns addresses
local now = now_ms()
redis.call('ZADD', key.routers, now + arg.lease_ms, arg.address)
redis.call('ZREMRANGEBYSCORE', key.routers, '-inf', now)
return redis.call('ZRANGE', key.routers, 0, -1)
