/** Returns the focus to a list, from whose menu a dialog was opened. */
let listOfMenu: HTMLElement | null = null;

/** Notes the list whose context menu closes now. */
export function noteMenuOf(list: HTMLElement | null): void {
  listOfMenu = list;
}

/**
 * Waits for a dialog. If no element has the focus afterwards, the list gets it: JupyterLab returns it
 * to what had it when the dialog was drawn, which may be gone, or nothing.
 */
export async function returningFocus<T>(dialog: Promise<T>): Promise<T> {
  const list = listOfMenu;
  listOfMenu = null;
  const answer = await dialog;
  requestAnimationFrame(() => {
    if (document.activeElement === document.body) {
      list?.focus({ preventScroll: true });
    }
  });
  return answer;
}
