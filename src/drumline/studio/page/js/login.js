// The form of the login page: exchanges a pasted token for the cookie.

const form = document.querySelector("form");
const field = /** @type {HTMLInputElement} */ (document.querySelector("#token"));
const answer = /** @type {HTMLElement} */ (document.querySelector("#answer"));

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  answer.textContent = "";
  try {
    const response = await fetch("/login", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ token: field.value }),
    });
    if (response.ok) {
      // A login that is over stays out of the address.
      location.replace(location.pathname === "/login" ? "/" : location.href);
      return;
    }
    const told = await response.json();
    answer.textContent = `${told.error.message}. ${told.error.hint}`;
  } catch {
    answer.textContent = "the studio does not answer";
  }
});
