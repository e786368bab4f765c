-- Gives a tenant a quota of its own, or takes it away.
-- KEYS    quota, tenants (those with a quota of their own)
-- ARGV    tenant, then field, value, ... of the quota; none: the router's defaults again
-- returns 'set'
redis.call('DEL', KEYS[1])
if #ARGV > 1 then
  redis.call('HSET', KEYS[1], unpack(ARGV, 2))
  redis.call('SADD', KEYS[2], ARGV[1])
else
  redis.call('SREM', KEYS[2], ARGV[1])
end
return 'set'
