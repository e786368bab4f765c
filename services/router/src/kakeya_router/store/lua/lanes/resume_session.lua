-- Reserves a lane for a parked session in the middle of an operation on it, if the worker is alive, has the bytes, and
-- nobody in the queue comes first. A waiter leaves the queue with it.
-- of a session: its keys are of the worker that is to have it
-- arg claim
-- arg generation: of the primary
-- arg worker_id, incarnation, address, lane_bytes
-- arg waiter_id: '': not in the queue, '!': likewise, of an interrupted operation
-- arg may_clear: 0: a waiter whose lease has lapsed still counts
-- arg fingerprint, exact: of the worker, and whether the session is exact there (1 or 0)
-- out resumed {record}: under a new epoch
-- out full: the worker has not the bytes
-- out away: the incarnation is not alive, or is drained
-- out wait: another waiter comes first at this worker
-- out gone: closed, lost or taken over
if not holds() or redis.call('HGET', key.session, 'state') ~= 'parked' then
  return {'gone'}
end
local refusal = refuses_lane(key.worker)
if refusal then
  return {refusal}
end
local tenant = redis.call('HGET', key.session, 'tenant') or ''
if not is_first(tenant, now_ms()) then
  return {'wait'}
end
redis.call('HSET', key.session, 'epoch', next_epoch(), 'state', 'open', 'worker_id', arg.worker_id,
  'incarnation', arg.incarnation, 'address', arg.address, 'reserved_bytes', arg.lane_bytes,
  'history_length', 0, 'lane_rewinds', 0, 'fingerprint', arg.fingerprint, 'exact', arg.exact)
redis.call('ZREM', key.parked, arg.session_id)
take_lane(key.worker, key.sessions, arg.lane_bytes)
redis.call('ZADD', key.expiry, now_ms() + redis.call('HGET', key.session, 'ttl_ms'), arg.session_id)
leave_queue()
return {'resumed', redis.call('HGETALL', key.session)}
