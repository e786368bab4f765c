-- Keeps an object of a tenant, in place of the one that has its id.
-- key object
-- key expiries: ids of the tenant's objects by the time at which they expire
-- key sizes: their bytes by id, the sum of all as 'total:', and how often one has changed as 'changes:ID'
-- arg id
-- arg data
-- arg ttl_ms
-- arg max_bytes: of all together; 0: no limit
-- returns 1, or 0 where they would be more: nothing has changed then but what had expired
local expires_ms = count_object(arg.id, #arg.data, tonumber(arg.ttl_ms), tonumber(arg.max_bytes))
if not expires_ms then
  return 0
end
redis.call('SET', key.object, arg.data, 'PXAT', expires_ms)
return 1
