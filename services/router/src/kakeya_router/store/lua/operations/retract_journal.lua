-- Takes the last tokens out of a session's history again: they could not be prefilled.
-- of a session
-- arg claim, epoch
-- arg journal_length: the one to be
-- out retracted
-- out gone: closed, lost, taken over or under another lease; nothing is changed
if not holds() or redis.call('HGET', key.session, 'epoch') ~= arg.epoch then
  return 'gone'
end
local length = tonumber(arg.journal_length)
cut_journal(length)
-- An operation that begins with this begins there.
local start_length = tonumber(redis.call('HGET', key.operation, 'start_length') or 0)
redis.call('HSET', key.operation, 'start_length', string.format('%.0f', math.min(start_length, length)))
local operation_start = tonumber(redis.call('HGET', key.session, 'operation_start') or 0)
redis.call('HSET', key.session, 'operation_start', string.format('%.0f', math.min(operation_start, length)))
return 'retracted'
