-- Adds tokens to a session's history: from here on they are in it, whatever becomes of its lane.
-- of a session
-- arg claim, epoch
-- arg start: history index of the first
-- arg tokens: 4 bytes each, little-endian
-- arg max_tokens: the oldest beyond so many leave the journal, where no snapshot will ever have them
-- out extended {journal_length, digest}: of the history then; '': not known
-- out gone: closed, lost, taken over or under another lease; nothing is changed
if not holds() or redis.call('HGET', key.session, 'epoch') ~= arg.epoch then
  return {'gone'}
end
local length, digest = extend_journal()  -- of prelude/journal.lua
if not length then
  return {'gone'}
end
local worker = redis.call('HMGET', key.worker, 'incarnation', 'snapshot_store')
local is_in_no_snapshot = (worker[2] or '') == '' or redis.call('HGET', key.session, 'ephemeral') == '1'
if worker[1] and is_in_no_snapshot then
  trim_journal(length - arg.max_tokens)
end
return {'extended', length, digest or ''}
