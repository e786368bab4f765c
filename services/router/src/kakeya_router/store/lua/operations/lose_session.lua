-- Takes a session off a lane that is gone: it is PARKED where it can be resumed, else LOST, and its record answers
-- until its retention ends.
-- of a session
-- arg claim: '' in a sweep: the incarnation is gone
-- arg lost_ms, parked_ms: how long it is kept then
-- arg start, tokens: what was generated and is not journaled yet, as extend_journal.lua takes it
-- arg incarnation: in a sweep, that is gone
-- arg for_good: 1: it is known that it cannot be resumed
-- out lost
-- out parked
-- out gone: closed, being closed, failed, lost or parked before, or taken over
-- out busy: in a sweep: an operation runs, and sees to it itself
-- out alive: in a sweep: its incarnation has joined again; nothing is changed
local record = redis.call('HMGET', key.session, 'state', 'incarnation')
local now = now_ms()
if arg.claim == '' then
  if record[2] ~= arg.incarnation then
    redis.call('SREM', key.sessions, arg.session_id)
    return 'gone'  -- it has another lane by now
  end
  if redis.call('HGET', key.worker, 'incarnation') == record[2] then
    return 'alive'
  end
  redis.call('SREM', key.sessions, arg.session_id)
  local lease_until = redis.call('HGET', key.operation, 'lease_until_ms')
  if record[1] == 'open' and lease_until and tonumber(lease_until) > now then
    return 'busy'
  end
elseif not holds() then
  return 'gone'
end
if record[1] ~= 'open' and record[1] ~= 'opening' and (record[1] ~= 'parked' or arg.claim == '') then
  return 'gone'
end
if arg.tokens ~= '' then
  extend_journal(read_journal())  -- of an answer: an append is journaled before
end
charge(redis.call('HGET', key.session, 'journal_length') or 0, now)
redis.call('DEL', key.operation)
if record[1] ~= 'opening' and arg.for_good ~= '1' and is_recoverable() then
  park()
  redis.call('HSET', key.session, 'idle_since_ms', now)
  redis.call('ZADD', key.parked, 'XX', now, arg.session_id)
  redis.call('ZADD', key.expiry, parked_until(now, now), arg.session_id)
  return 'parked'
end
leave_lane('lost')
leave_lists()
redis.call('DEL', key.journal)
redis.call('ZADD', key.expiry, now + arg.lost_ms, arg.session_id)
forget_request()
forget_tags()
return 'lost'
