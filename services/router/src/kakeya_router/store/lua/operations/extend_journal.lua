-- Adds tokens to a session's history: from here on they are in it, whatever becomes of its lane.
-- KEYS    session, operation, worker, sessions, expiry, request, usage, queue, waiters, idle, tokens, journal
-- ARGV    session_id, claim, epoch, start (history index of the first), tokens (4 bytes each, little-endian),
--         max_tokens: the oldest beyond so many leave the journal, where no snapshot will ever have them
-- returns {'extended', journal_length, digest of the history then ('': not known)}
--         {'gone'} closed, lost, taken over or under another lease; nothing is changed
if not holds(ARGV[2]) or redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[3] then
  return {'gone'}
end
local length, digest = extend_journal(tonumber(ARGV[4]), ARGV[5])
if not length then
  return {'gone'}
end
local worker = redis.call('HMGET', KEYS[3], 'incarnation', 'snapshot_store')
local is_in_no_snapshot = (worker[2] or '') == '' or redis.call('HGET', KEYS[1], 'ephemeral') == '1'
if worker[1] and is_in_no_snapshot then
  trim_journal(length - ARGV[6])
end
return {'extended', length, digest or ''}
