-- The queue: who comes first at which worker.

-- Takes waiters {member, id} out of the queue.
local function forget(gone)
  if #gone == 0 then
    return
  end
  local members, fields = {}, {}
  for i, waiter in ipairs(gone) do
    members[i] = waiter.member
    for _, field in ipairs({'|member', '|wants', '|lease_until_ms'}) do
      fields[#fields + 1] = waiter.id .. field
    end
  end
  redis.call('ZREM', key.queue, unpack(members))
  redis.call('HDEL', key.waiters, unpack(fields))
  if redis.call('EXISTS', key.queue) == 0 then
    redis.call('DEL', key.waiters)
  end
end

-- Takes the waiter arg.waiter_id out of the queue, if it is in it.
local function leave_queue()
  local member = redis.call('HGET', key.waiters, arg.waiter_id .. '|member')
  if member then
    forget({{member = member, id = arg.waiter_id}})
    announce_room()
  end
end

-- The members of the queue are "TENANT|ticket|waiter id"; '|' is above and '}' beyond all that tenants consist of.
local function parse_member(member)
  return string.match(member, '^(.-)|(%d+)|(.*)$')
end

-- The queue is read in batches: with a thousand in it, a command for each of them would keep all others from Redis.
local BATCH = 128

-- The next waiters in the order of the queue's text: their members, tenants, ids and one field of each, as arrays;
-- then what those after them are beyond, or false.
local function read_waiters(bound, field)
  local members = redis.call('ZRANGEBYLEX', key.queue, bound, '+', 'LIMIT', 0, BATCH)
  local tenants, ids, fields, tenant, prefix = {}, {}, {}, nil, nil
  for i, member in ipairs(members) do
    if not prefix or string.sub(member, 1, #prefix) ~= prefix then
      tenant = parse_member(member)
      prefix = tenant .. '|'
    end
    local id = string.sub(member, #prefix + 18)  -- after the ticket's 16 digits and another '|'
    tenants[i], ids[i], fields[i] = tenant, id, id .. field
  end
  local values = #members > 0 and redis.call('HMGET', key.waiters, unpack(fields)) or {}
  return members, tenants, ids, values, #members == BATCH and '(' .. members[BATCH]
end

-- Takes all whose lease has lapsed out of the queue, at most once a second; how many those were.
local function purge(now)
  local purged_ms = redis.call('HGET', key.waiters, 'purged_ms')
  if redis.call('EXISTS', key.queue) == 0 or (purged_ms and now - purged_ms < 1000) then
    return 0
  end
  redis.call('HSET', key.waiters, 'purged_ms', now)
  local bound, num_purged = '-', 0
  while bound do
    local lapsed, members, ids, leases, _ = {}, nil, nil, nil, nil
    members, _, ids, leases, bound = read_waiters(bound, '|lease_until_ms')
    for i, lease_until in ipairs(leases) do
      if tonumber(lease_until or 0) <= now then  -- one without fields is an empty place
        lapsed[#lapsed + 1] = {member = members[i], id = ids[i]}
      end
    end
    forget(lapsed)
    num_purged = num_purged + #lapsed
  end
  return num_purged
end

-- What waiters may want of a worker.
local function offer_of(worker)
  return redis.call('HMGET', worker, 'incarnation', 'fingerprint', 'model', 'snapshot_store', 'model_digest', 'features')
end

-- Whether what a waiter wants, as JSON holds it, is served by a worker with such an offer. An older router's waiter
-- says no model, no incarnation, no snapshot store, no features and no model digest, which is of a model that it takes
-- under another fingerprint, too.
local function can_use(wants, worker)
  if (wants.incarnation or '') ~= '' and wants.incarnation ~= worker[1] then
    return false
  end
  if wants.model and wants.model ~= worker[3] then
    return false
  end
  local is_same_model = (wants.model_digest or '') ~= '' and wants.model_digest == worker[5]
  if wants.fingerprint ~= '' and wants.fingerprint ~= worker[2] and not is_same_model then
    return false
  end
  if (wants.snapshot_store or '') ~= '' and wants.snapshot_store ~= worker[4] then
    return false
  end
  for _, feature in ipairs(wants.features or {}) do
    if not string.find(',' .. (worker[6] or '') .. ',', ',' .. feature .. ',', 1, true) then
      return false
    end
  end
  for _, incarnation in ipairs(wants.refused) do
    if incarnation == worker[1] then
      return false
    end
  end
  return true
end

-- Numbers of the workers that can be used by who wants this; `known` holds what was asked before.
local function usable_workers(known, text, workers)
  if not known[text] then
    local wants, usable = cjson.decode(text), {}
    for i, worker in ipairs(workers) do
      if can_use(wants, worker) then
        usable[#usable + 1] = i
      end
    end
    known[text] = usable
  end
  return known[text]
end

-- Whether a waiter {bytes, ticket, id} comes before another. Tickets are equally long.
local function comes_before(one, other)
  if one[1] ~= other[1] then
    return one[1] < other[1]
  end
  return one[2] < other[2]
end

-- Who is the first at each of some workers, given by their offers: inside a tenant the oldest, between tenants the one
-- that holds the fewest bytes, then the older. Those whose lease has lapsed do not count if arg.may_clear is 1, and
-- leave the queue where they stood in the way. A caller that only asks whether a waiter comes before `other`
-- {bytes, ticket} is answered with what is known when the first such is found.
-- Returns for each worker {bytes, ticket, id}, or false.
local function first_in_queue(workers, now, other)
  local firsts, known, tenant, seen, done, num_done = {}, {}, nil, nil, nil, 0
  for i = 1, #workers do
    firsts[i] = false
  end
  local function has_lapsed(id)
    return arg.may_clear == '1' and tonumber(redis.call('HGET', key.waiters, id .. '|lease_until_ms') or 0) <= now
  end
  -- Whether it counts: where it cannot be the first, nobody asks for its lease.
  local function look_at(candidate, wants)
    local better = {}
    for _, i in ipairs(usable_workers(known, wants, workers)) do
      if not done[i] and (not firsts[i] or comes_before(candidate, firsts[i])) then
        better[#better + 1] = i
      end
    end
    if #better > 0 and has_lapsed(candidate[3]) then
      return false
    end
    for _, i in ipairs(better) do
      firsts[i] = candidate
    end
    return true
  end
  local bound = '-'
  while bound do
    local lapsed, members, tenants, ids, wants = {}, nil, nil, nil, nil
    members, tenants, ids, wants, bound = read_waiters(bound, '|wants')
    local held = held_by(tenants)
    for i, member in ipairs(members) do
      if tenants[i] ~= tenant then
        tenant, seen, done, num_done = tenants[i], {}, {}, 0
        if other and held[tenant] > other[1] then
          num_done = #workers  -- none of its waiters comes before
        end
      end
      if not wants[i] then
        lapsed[#lapsed + 1] = {member = member, id = ids[i]}
      elseif num_done < #workers and not seen[wants[i]] then
        local ticket = string.sub(member, #tenant + 2, #tenant + 17)
        if look_at({held[tenant], ticket, ids[i]}, wants[i]) then
          seen[wants[i]] = true  -- the next that wants the same comes after it everywhere
          for _, worker in ipairs(usable_workers(known, wants[i], workers)) do
            num_done = num_done + (done[worker] and 0 or 1)
            done[worker] = true
          end
        else
          lapsed[#lapsed + 1] = {member = member, id = ids[i]}
        end
      end
    end
    forget(lapsed)
    for i = 1, #workers do
      if other and firsts[i] and comes_before(firsts[i], other) then
        return firsts
      end
    end
    if bound and num_done == #workers then
      bound = '(' .. tenant .. '}'
    end
  end
  return firsts
end

-- Whether arg.waiter_id is the first at key.worker: a newcomer ('') before whom nobody in the queue comes, or a waiter
-- that stands in it.
local function is_first(tenant, now)
  local ticket, waiter_id = '~', arg.waiter_id  -- a newcomer's ticket is yet to come
  if waiter_id == INTERRUPTED then
    tenant, waiter_id = INTERRUPTED, ''
  elseif waiter_id ~= '' then
    local member = redis.call('HGET', key.waiters, waiter_id .. '|member')
    if not member then
      return false
    end
    tenant, ticket = parse_member(member)
  end
  local me = {held_by({tenant})[tenant], ticket}
  local first = first_in_queue({offer_of(key.worker)}, now, me)[1]
  if waiter_id == '' then
    return not (first and comes_before(first, me))
  end
  return first and first[3] == waiter_id
end
