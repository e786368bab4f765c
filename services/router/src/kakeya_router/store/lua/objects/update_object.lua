-- Changes an object of a tenant that has this version still. What is appended is all that Redis writes down of it.
-- key object
-- key expiries, sizes: as of store_object.lua
-- arg id
-- arg version
-- arg data
-- arg appends: 1: the data come behind what is there; 0: in place of it
-- arg ttl_ms
-- arg max_object_bytes: that it may have then
-- arg max_bytes: as of store_object.lua
-- out updated {version}
-- out changed: it has another version
-- out missing
-- out large: it would have more bytes than one may
-- out quota: the tenant's objects would
if redis.call('EXISTS', key.object) == 0 then
  return 'missing'
end
if object_version(arg.id) ~= tonumber(arg.version) then
  return 'changed'
end
local size = #arg.data
if arg.appends == '1' then
  size = size + redis.call('STRLEN', key.object)
end
if size > tonumber(arg.max_object_bytes) then
  return 'large'
end
local expires_ms = count_object(arg.id, size, tonumber(arg.ttl_ms), tonumber(arg.max_bytes))
if not expires_ms then
  return 'quota'
end
if arg.appends == '1' then
  redis.call('APPEND', key.object, arg.data)
  redis.call('PEXPIREAT', key.object, expires_ms)
else
  redis.call('SET', key.object, arg.data, 'PXAT', expires_ms)
end
return {'updated', object_version(arg.id)}
