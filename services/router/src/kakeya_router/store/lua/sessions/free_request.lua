-- Lets a CreateSession be answered anew whose session is gone, as where Redis has evicted that.
-- key request
-- arg session_id: that it has made
-- returns how many ids were freed
if redis.call('GET', key.request) == arg.session_id then
  return redis.call('DEL', key.request)
end
return 0
