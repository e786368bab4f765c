-- Adds tokens to a session's history: from here on they are in it, whatever becomes of its lane.
-- key session, operation, worker, journal, tags, tagged
-- arg session_id, claim, epoch
-- arg start: history index of the first
-- arg tokens: 4 bytes each, little-endian
-- arg max_tokens: the oldest beyond so many leave the journal, where no snapshot will ever have them; a sixteenth at a
--     time, since to trim a journal is to copy what is left of it
-- arg start_tags...: in hex, of the place behind the tokens, if that is where the operation's answer begins
-- out extended {journal_length, digest}: of the history then; '': not known
-- out gone: closed, lost, taken over or under another lease; nothing is changed
local operation = redis.call('HMGET', key.operation, 'claim', 'append_end')
local journal = read_journal()
if operation[1] ~= arg.claim or journal.epoch ~= arg.epoch then
  return {'gone'}
end
if not extend_journal(journal, operation[2]) then  -- of prelude/journal.lua
  return {'gone'}
end
local length, digest = journal.length, journal.at_end
local excess = length - journal.first - arg.max_tokens
if excess > math.floor(arg.max_tokens / 16) then
  local worker = redis.call('HMGET', key.worker, 'incarnation', 'snapshot_store')
  local is_in_no_snapshot = (worker[2] or '') == '' or redis.call('HGET', key.session, 'ephemeral') == '1'
  if worker[1] and is_in_no_snapshot then
    trim_journal(length - arg.max_tokens)
  end
end
if arg.start_tags[1] and tonumber(redis.call('HGET', key.session, 'operation_start')) == length then
  local text = string.format('%.0f', length)
  local new = new_tags('start|' .. text, arg.start_tags)
  if new[1] then
    add_tags('start', text, length, new)
  end
end
return {'extended', length, digest or ''}
