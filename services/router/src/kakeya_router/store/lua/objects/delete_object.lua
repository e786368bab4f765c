-- Forgets an object of a tenant.
-- key object
-- key expiries, sizes: as of store_object.lua
-- arg id
-- returns how many there were: 1 or 0
forget_object(arg.id)
return redis.call('DEL', key.object)
