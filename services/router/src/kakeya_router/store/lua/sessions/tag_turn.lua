-- Gives a place of a session's history tags. The session keeps those of its last four turns and of its head.
-- of a session
-- arg kind: 'head'; 'start' or 'end' of an answer
-- arg length: history length of the place
-- arg op_id: of the Generate that was the latest operation when the caller was told of the place; '': of a head, in a
--     history that was never taken back
-- arg tags...: in hex
-- out tagged
-- out elsewhere {record}: the place is not there any more, or never was
-- out failed {record}
-- out missing, lost
-- out busy: the answer has not ended, or a rewind runs
local record = redis.call('HMGET', key.session,
  'state', 'operation_id', 'operation_start', 'journal_length', 'num_rewinds')
local state, length = record[1], tonumber(arg.length)
if not state or state == 'opening' or state == 'closing' then
  return {'missing'}
elseif state == 'failed' then
  return {'failed', redis.call('HGETALL', key.session)}
elseif state == 'lost' then
  return {'lost'}
end
local place = arg.kind .. '|' .. arg.length
local num_rewinds = record[5] or '0'
local new = new_tags(place, arg.tags)
if #new == 0 then
  return {'tagged'}
end
-- One that has seen that no tag is in its way must not meet one later.
if redis.call('HGET', key.operation, 'kind') == 'rewind' then
  return {'busy'}
end
-- A length alone is not enough: since the caller was told of it the history may have become another one there.
local start, stop = tonumber(record[3] or 0), tonumber(record[4] or 0)
local is_there
if arg.op_id == '' then
  start = 0
  is_there = arg.kind == 'head' and num_rewinds == '0'
elseif arg.op_id == record[2] then
  if arg.kind == 'end' and redis.call('HGET', key.operation, 'op_id') == arg.op_id then
    return {'busy'}
  end
  is_there = (arg.kind == 'head' and length <= start) or (arg.kind == 'start' and length == start)
    or (arg.kind == 'end' and length == stop)
end
if not is_there or length > stop then
  return {'elsewhere', redis.call('HGETALL', key.session)}
end
add_tags(arg.kind, arg.length, start, new)
return {'tagged'}
