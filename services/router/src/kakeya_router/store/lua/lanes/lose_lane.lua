-- Takes a session off its lane, whose worker is gone or does not have it, in the middle of an operation that goes on.
-- of a session
-- arg claim
-- arg fingerprint, exact: under which it was computed so far, and whether it is exact (1 or 0)
-- out parked {record}
-- out lost: what its journal lacks is in no snapshot
-- out gone: closed, lost or taken over
if not holds() then
  return {'gone'}
end
if not is_recoverable() then
  return {'lost'}
end
park()
redis.call('HSET', key.session, 'fingerprint', arg.fingerprint, 'exact', arg.exact)
return {'parked', redis.call('HGETALL', key.session)}
