-- Keeps an object of a tenant, in place of the one that has its id. What has expired is taken out of the sum first.
-- key object
-- key expiries: ids of the tenant's objects by the time at which they expire
-- key sizes: their bytes by id, and the sum of all as 'total:'
-- arg id
-- arg data
-- arg size: of the data, in bytes
-- arg ttl_ms
-- arg max_bytes: of all together; 0: no limit
-- returns 1, or 0 where they would be more: nothing has changed then but what had expired
local now = now_ms()
for _, id in ipairs(redis.call('ZRANGEBYSCORE', key.expiries, '-inf', now)) do
  forget_object(id)
end
local before = tonumber(redis.call('HGET', key.sizes, arg.id) or 0)
local total = tonumber(redis.call('HGET', key.sizes, 'total:') or 0) - before + arg.size
local max_bytes = tonumber(arg.max_bytes)
if max_bytes > 0 and total > max_bytes then
  return 0
end
local expires_ms = now + tonumber(arg.ttl_ms)
redis.call('SET', key.object, arg.data, 'PXAT', expires_ms)
redis.call('ZADD', key.expiries, expires_ms, arg.id)
redis.call('HSET', key.sizes, arg.id, arg.size, 'total:', total)
-- Nothing of a tenant is left behind once its last object has expired.
local last = redis.call('ZRANGE', key.expiries, -1, -1, 'WITHSCORES')[2]
redis.call('PEXPIREAT', key.expiries, last)
redis.call('PEXPIREAT', key.sizes, last)
return 1
