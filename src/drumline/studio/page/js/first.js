// Before anything is drawn, and while the modules are on their way: the theme that was chosen here, if it is not that
// of the system, and the questions that the page begins with. A script and no module, so that the page never flashes in
// the other theme, and the server works on its answers meanwhile.
try {
  const theme = localStorage.getItem("drumline.theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
} catch {
  // A browser that keeps nothing: the system's theme.
}
{
  const { workspace, ...asked } = Object.fromEntries(new URLSearchParams(location.search));
  const [place, name] = location.pathname.split("/").filter(Boolean);
  window.early = new Map();

  /** Ask as api.js will, which takes the answer from here. @param {string} path @param {Record<string, any>} [query] */
  const ask = (path, query = {}) => {
    const given = Object.entries({ workspace, ...query }).filter(([, value]) => value !== undefined && value !== "");
    const text = new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString().replaceAll("%2C", ",").replaceAll("%2F", "/");
    const url = `/api/v1${path}${text ? `?${text}` : ""}`;
    const answer = fetch(url, { credentials: "same-origin", redirect: "error" });
    answer.catch(() => {}); // Who takes it hears of that.
    window.early?.set(url, answer);
  };

  if (!place || (place === "jobs" && !name)) {
    const kept = place ? asked : {};
    ask("/jobs", { ...kept, sort: kept.sort ?? "-created", offset: Number(kept.offset) || 0, limit: 100, spark: 1 });
  } else if (place === "jobs" && !name.includes("%")) {
    ask(`/jobs/${name}`);
  }
  ask("/me");
}
