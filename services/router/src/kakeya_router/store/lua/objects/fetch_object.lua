-- An object of a tenant.
-- key object
-- key sizes: as of store_object.lua
-- arg id
-- returns it and its version; nothing where there is none
local data = redis.call('GET', key.object)
if not data then
  return {}
end
return {data, object_version(arg.id)}
