export interface IString {
  context: string;
  text: string;
  plural: string;
  places: string[];
}

/** The strings that people read, and the calls whose text is not literal. */
export function findStrings(): { strings: IString[]; problems: string[] };
