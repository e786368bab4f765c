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
local MAX_TURNS, MAX_TAGS = 4, 4
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
if not has_true_tags() then
  forget_tags()
end
local text = redis.call('HGET', key.tags, place) or ''
local known, new = {}, {}
for tag in string.gmatch(text, ':(%x+)') do
  known[tag] = true
end
for _, tag in ipairs(arg.tags) do
  if not known[tag] then
    known[tag], new[#new + 1] = true, tag
  end
end
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
local at_us = tag_time()
local texts = {}
for each in string.gmatch(text, '%d+:%x+') do
  texts[#texts + 1] = each
end
for _, tag in ipairs(new) do
  texts[#texts + 1] = at_us .. ':' .. tag
  redis.call('ZADD', key.tagged, 0, tag_entry(place, at_us, tag))
end
while #texts > MAX_TAGS do
  local old_us, old = string.match(table.remove(texts, 1), '(%d+):(%x+)')
  redis.call('ZREM', key.tagged, tag_entry(place, old_us, old))
end
redis.call('HSET', key.tags, 'index', key.tagged, 'num_rewinds', num_rewinds,
  place, string.format('%.0f ', start) .. table.concat(texts, ' '))
-- What is too old now: the head before this one, and places of turns that are not among the last.
local places = tagged_places(redis.call('HGETALL', key.tags))
table.sort(places, function(one, other) return one.start > other.start end)
local num_turns, last_start = 0, nil
for _, each in ipairs(places) do
  local is_old = each.kind == 'head' and arg.kind == 'head' and each.place ~= place
  if each.kind ~= 'head' then
    if each.start ~= last_start then
      num_turns, last_start = num_turns + 1, each.start
    end
    is_old = num_turns > MAX_TURNS
  end
  if is_old then
    untag(each.place, each.text)
  end
end
return {'tagged'}
