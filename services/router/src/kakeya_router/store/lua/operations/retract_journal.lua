-- Takes the last tokens out of a session's history again: they could not be prefilled.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id, claim, epoch, journal_length (the one to be)
-- returns 'retracted' | 'gone' (closed, lost, taken over or under another lease; nothing is changed)
if not holds(ARGV[2]) or redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[3] then
  return 'gone'
end
local length = tonumber(ARGV[4])
cut_journal(length)
-- An operation that begins with this begins there.
local start_length = tonumber(redis.call('HGET', KEYS[2], 'start_length') or 0)
redis.call('HSET', KEYS[2], 'start_length', string.format('%.0f', math.min(start_length, length)))
local operation_start = tonumber(redis.call('HGET', KEYS[1], 'operation_start') or 0)
redis.call('HSET', KEYS[1], 'operation_start', string.format('%.0f', math.min(operation_start, length)))
return 'retracted'
