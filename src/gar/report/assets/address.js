// What is shown is kept in the address: #rollouts?step=3&verdict=wrong&group=0:3:1&response=2 opens one rollout.

function readAddress() {
  const [tab] = location.hash.slice(1).split('?', 1);
  return { tab, params: Object.fromEntries(new URLSearchParams(location.hash.slice(tab.length + 2))) };
}

// Empty values are left out.
function addressOf(tab, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== '' && value !== null && value !== undefined));
  return `#${tab}${query.size ? `?${query}` : ''}`;
}

const lastParams = new Map(); // what each tab showed when it was left

// A new place, to which the Back button returns.
function goTo(tab, params = {}) {
  history.pushState(null, '', addressOf(tab, params));
  showPlace();
}

// The same place with other choices.
function keep(params) {
  const place = readAddress();
  history.replaceState(null, '', addressOf(place.tab, { ...place.params, ...params }));
  lastParams.set(place.tab, readAddress().params);
}

window.addEventListener('popstate', () => showPlace());
