-- Has an incarnation emptied, or no more; what it says itself in heartbeats is another mark.
-- KEYS    worker, queue
-- ARGV    incarnation, drain_asked (1: it is to be emptied)
-- returns 'marked' | 'unknown' (not registered, or not any more)
if redis.call('HGET', KEYS[1], 'incarnation') ~= ARGV[1] then
  return 'unknown'
end
redis.call('HSET', KEYS[1], 'drain_asked', ARGV[2])
announce_room(KEYS[2])
return 'marked'
