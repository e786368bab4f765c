-- Takes an object that is no more out of its tenant's sum.
local function forget_object(id)
  local size = redis.call('HGET', key.sizes, id)
  if size then
    redis.call('HINCRBY', key.sizes, 'total:', 0 - tonumber(size))
    redis.call('HDEL', key.sizes, id, 'changes:' .. id)
  end
  redis.call('ZREM', key.expiries, id)
end

-- Which version an object has.
local function object_version(id)
  return 1 + tonumber(redis.call('HGET', key.sizes, 'changes:' .. id) or 0)
end

-- Counts that an object has this size now, and until when it is kept. What has expired is taken out of the sum first.
-- False where its tenant's objects would be more than max_bytes, if that is not 0: it is not counted then.
local function count_object(id, size, ttl_ms, max_bytes)
  local now = now_ms()
  for _, expired in ipairs(redis.call('ZRANGEBYSCORE', key.expiries, '-inf', now)) do
    forget_object(expired)
  end
  local before = redis.call('HGET', key.sizes, id)
  local total = tonumber(redis.call('HGET', key.sizes, 'total:') or 0) - tonumber(before or 0) + size
  if max_bytes > 0 and total > max_bytes then
    return false
  end
  local expires_ms = now + ttl_ms
  redis.call('ZADD', key.expiries, expires_ms, id)
  redis.call('HSET', key.sizes, id, size, 'total:', total)
  if before then
    redis.call('HINCRBY', key.sizes, 'changes:' .. id, 1)
  end
  -- Nothing of a tenant is left behind once its last object has expired.
  local last = redis.call('ZRANGE', key.expiries, -1, -1, 'WITHSCORES')[2]
  redis.call('PEXPIREAT', key.expiries, last)
  redis.call('PEXPIREAT', key.sizes, last)
  return expires_ms
end
