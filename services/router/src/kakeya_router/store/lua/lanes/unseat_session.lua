-- Takes a session off its lane, whose worker is gone or does not have it, in the middle of an operation that goes on.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id, claim, fingerprint under which it was computed so far, whether it is exact (1 or 0)
-- returns {'parked', record}
--         {'lost'} what its journal lacks is in no snapshot
--         {'gone'} closed, lost or taken over
if not holds(ARGV[2]) then
  return {'gone'}
end
if not is_recoverable() then
  return {'lost'}
end
park()
redis.call('HSET', KEYS[1], 'fingerprint', ARGV[3], 'exact', ARGV[4])
return {'parked', redis.call('HGETALL', KEYS[1])}
