-- Has an incarnation drained, or no more; what it says itself in heartbeats is another mark.
-- key worker, queue
-- arg incarnation
-- arg drain_asked: 1: it is to be drained
-- out marked
-- out unknown: not registered, or not any more
if redis.call('HGET', key.worker, 'incarnation') ~= arg.incarnation then
  return 'unknown'
end
redis.call('HSET', key.worker, 'drain_asked', arg.drain_asked)
announce_room()
return 'marked'
