// Before anything is drawn: the theme that was chosen here, if it is not that of the system.
// A script and no module, so that the page never flashes in the other theme.
try {
  const theme = localStorage.getItem("drumline.theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
} catch {
  // A browser that keeps nothing: the system's theme.
}
