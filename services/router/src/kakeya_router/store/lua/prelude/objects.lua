-- Takes an object that is no more out of its tenant's sum.
local function forget_object(id)
  local size = redis.call('HGET', key.sizes, id)
  if size then
    redis.call('HINCRBY', key.sizes, 'total:', 0 - tonumber(size))
    redis.call('HDEL', key.sizes, id)
  end
  redis.call('ZREM', key.expiries, id)
end
