-- Gives a tenant a quota of its own, or takes it away.
-- key quota
-- key tenants: those with a quota of their own
-- arg tenant
-- arg record...: field, value, ... of the quota; none: the router's defaults again
-- returns nothing
redis.call('DEL', key.quota)
if #arg.record > 0 then
  redis.call('HSET', key.quota, unpack(arg.record))
  redis.call('SADD', key.tenants, arg.tenant)
else
  redis.call('SREM', key.tenants, arg.tenant)
end
