-- What scripts of every room do. A script gets of these files what it uses. Functions take keys and arguments by the
-- names that its header gives them.

-- Redis's clock in milliseconds, the only one that leases and time-outs go by.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Tells routers that show what runs that a session is another one now. Not at each token: of a busy one they ask.
local function announce_change(session_id)
  redis.call('PUBLISH', 'kakeya:changed', session_id)
end

-- Tells all routers that a waiter in the queue may be the first at a worker with room now.
local function announce_room()
  if redis.call('EXISTS', key.queue) == 1 then
    redis.call('PUBLISH', 'kakeya:room', string.match(key.queue, '{(.-)}'))
  end
end
