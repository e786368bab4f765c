-- The tags of a session script's session. key.tags says of each place, "KIND|LENGTH", the length at which its turn's answer
-- began and its tags, "START AT_US:TAG AT_US:TAG", and "index", the name of key.tagged, which says all of them anew by
-- tag. It has "num_rewinds", too: an older router takes a history back and leaves its tags as they are.

-- What the index says of a tag: of equal ones the later comes behind the earlier.
local function tag_entry(place, at_us, tag)
  return table.concat({tag, at_us, place, arg.session_id}, '|')
end

-- The time, as entries have it: microseconds, in 16 digits.
local function tag_time()
  local time = redis.call('TIME')
  return string.format('%010d%06d', time[1], time[2])
end

-- Forgets the tags of a place, which its text lists.
local function untag(place, text)
  for at_us, tag in string.gmatch(text, '(%d+):(%x+)') do
    redis.call('ZREM', key.tagged, tag_entry(place, at_us, tag))
  end
  redis.call('HDEL', key.tags, place)
end

-- The places of a list of fields and values, as {place, kind, length, start, text}.
local function tagged_places(fields)
  local places = {}
  for i = 1, #fields, 2 do
    local kind, length = string.match(fields[i], '^(%l+)|(%d+)$')
    if kind then
      places[#places + 1] = {place = fields[i], kind = kind, length = tonumber(length),
        start = tonumber(string.match(fields[i + 1], '^%d+')), text = fields[i + 1]}
    end
  end
  return places
end

-- Forgets all tags of the session.
local function forget_tags()
  for _, each in ipairs(tagged_places(redis.call('HGETALL', key.tags))) do
    untag(each.place, each.text)
  end
  redis.call('DEL', key.tags)
end

-- Whether what is tagged is of the history as it is.
local function has_true_tags(session, tags)
  return redis.call('HGET', tags or key.tags, 'num_rewinds')
    == (redis.call('HGET', session or key.session, 'num_rewinds') or '0')
end

-- Forgets the tags of places beyond a length, to which the history is being taken back for the so manieth time.
local function cut_tags(length, num_rewinds)
  local is_any_kept = false
  for _, each in ipairs(tagged_places(redis.call('HGETALL', key.tags))) do
    if each.length > length then
      untag(each.place, each.text)
    else
      is_any_kept = true
    end
  end
  if is_any_kept then
    redis.call('HSET', key.tags, 'num_rewinds', num_rewinds)
  else
    redis.call('DEL', key.tags)
  end
end

-- Lets the tags that a fork has of its source be found, as the latest.
local function publish_tags()
  local at_us = tag_time()
  for _, each in ipairs(tagged_places(redis.call('HGETALL', key.tags))) do
    local text = string.gsub(each.text, '%d+:', at_us .. ':')
    for tag in string.gmatch(text, ':(%x+)') do
      redis.call('ZADD', key.tagged, 0, tag_entry(each.place, at_us, tag))
    end
    redis.call('HSET', key.tags, each.place, text)
  end
end

-- Of tags those that a place does not have yet; what is tagged is of the history as it is from then on.
local function new_tags(place, tags)
  if not has_true_tags() then
    forget_tags()
  end
  local known, new = {}, {}
  for tag in string.gmatch(redis.call('HGET', key.tags, place) or '', ':(%x+)') do
    known[tag] = true
  end
  for _, tag in ipairs(tags) do
    if not known[tag] then
      known[tag], new[#new + 1] = true, tag
    end
  end
  return new
end

-- What a session keeps: the places of so many turns, and so many tags of a place.
local MAX_TURNS, MAX_TAGS = 4, 4

-- Forgets what is too old now: the head before this one, and places of turns that are not among the last.
local function untag_old(kind, place)
  local places = tagged_places(redis.call('HGETALL', key.tags))
  table.sort(places, function(one, other) return one.start > other.start end)
  local num_turns, last_start = 0, nil
  for _, each in ipairs(places) do
    local is_old = each.kind == 'head' and kind == 'head' and each.place ~= place
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
end

-- Gives a place, of a turn whose answer began at `start`, tags that it does not have. `length` is text.
local function add_tags(kind, length, start, new)
  local place, at_us, texts = kind .. '|' .. length, tag_time(), {}
  for each in string.gmatch(redis.call('HGET', key.tags, place) or '', '%d+:%x+') do
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
  local num_rewinds = redis.call('HGET', key.session, 'num_rewinds') or '0'
  redis.call('HSET', key.tags, 'index', key.tagged, 'num_rewinds', num_rewinds,
    place, string.format('%.0f ', start) .. table.concat(texts, ' '))
  untag_old(kind, place)
end
