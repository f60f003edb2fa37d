/** Tabs whose panels are built when opened, and idle while not visible. */
import { h, setAttribute, setHidden } from '../dom/dom.js';
import type { Settings } from '../model/viewsettings.js';
import type { IViewState } from '../model/state.js';
import type { ITrans } from '../model/trans.js';
import type { IPanel, ITab } from './tab.js';

let numFrames = 0;

interface IPlace {
  tab: ITab;
  button: HTMLButtonElement;
  host: HTMLElement;
  panel?: IPanel;
}

export class TabFrame {
  readonly node: HTMLElement;
  /** The end of the row of tabs. */
  readonly aside = h('div.det-aside');

  /** The open tab is stored in `settings`; the first one is the default. */
  constructor(
    trans: ITrans,
    private readonly _settings: Settings,
    tabs: readonly ITab[]
  ) {
    const name = `det-tabs-${(numFrames += 1)}`;
    this._places = tabs.map(tab => this._place(tab, name));
    const list = h('div.det-tablist', { role: 'tablist', 'aria-label': trans.__('Parts') });
    list.append(...this._places.map(place => place.button));
    list.addEventListener('keydown', event => this._onKey(event));
    const hosts = this._places.map(place => place.host);
    this.node = h('div.det-tabs', {}, h('div.det-tabline', {}, list, this.aside), ...hosts);
    _settings.onChange(() => this._follow());
  }

  get chosen(): string {
    return this._chosen?.tab.id ?? '';
  }

  update(state: IViewState): void {
    this._state = state;
    if (this._chosen === undefined) {
      this._follow();
    } else {
      this._chosen.panel?.update?.(state);
    }
  }

  /** Open a tab and store it. */
  open(id: string): void {
    this._settings.change({ tab: id });
  }

  /** Set whether the view is visible. */
  setVisible(isVisible: boolean): void {
    if (isVisible !== this._isVisible) {
      this._isVisible = isVisible;
      this._chosen?.panel?.setShown?.(isVisible);
    }
  }

  restyle(): void {
    this._places.forEach(({ panel }) => panel?.restyle?.());
  }

  dispose(): void {
    this._places.forEach(place => {
      place.panel?.dispose();
      delete place.panel;
    });
  }

  private _place(tab: ITab, name: string): IPlace {
    const [id, panelId] = [`${name}-${tab.id}`, `${name}-${tab.id}-panel`];
    const button = h(
      'button.det-tab',
      {
        type: 'button',
        role: 'tab',
        id,
        'aria-controls': panelId,
        'aria-selected': 'false',
        tabindex: -1
      },
      tab.label
    );
    button.addEventListener('click', () => this.open(tab.id));
    const host = h('div.det-panel', {
      role: 'tabpanel',
      id: panelId,
      'aria-labelledby': id,
      'data-tab': tab.id,
      hidden: true
    });
    return { tab, button, host };
  }

  /** Show the tab that the settings name, or the first one if they name none. */
  private _follow(): void {
    const wanted = this._settings.value.tab;
    const place = this._places.find(({ tab }) => tab.id === wanted) ?? this._places[0];
    if (place === undefined || place === this._chosen || this._state === undefined) {
      return;
    }
    this._chosen?.panel?.setShown?.(false);
    this._chosen = place;
    this._places.forEach(({ button, host }) => {
      const isChosen = button === place.button;
      setAttribute(button, 'aria-selected', String(isChosen));
      setAttribute(button, 'tabindex', isChosen ? 0 : -1);
      setHidden(host, !isChosen);
    });
    setHidden(this.aside, place !== this._places[0]);
    place.panel ??= place.tab.open(place.host);
    place.panel.setShown?.(this._isVisible);
    place.panel.update?.(this._state);
  }

  private _onKey(event: KeyboardEvent): void {
    const last = this._places.length - 1;
    const now = this._places.findIndex(place => place === this._chosen);
    const wanted = {
      ArrowLeft: now === 0 ? last : now - 1,
      ArrowRight: now === last ? 0 : now + 1,
      Home: 0,
      End: last
    }[event.key];
    const place = this._places[wanted ?? -1];
    if (place !== undefined) {
      event.preventDefault();
      event.stopPropagation(); // notebooks move between cells with these keys
      this.open(place.tab.id);
      place.button.focus();
    }
  }

  private readonly _places: IPlace[];
  private _chosen: IPlace | undefined;
  private _state: IViewState | undefined;
  private _isVisible = true;
}
